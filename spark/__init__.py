"""penstock spark"""
