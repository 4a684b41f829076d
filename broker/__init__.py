"""penstock broker"""
