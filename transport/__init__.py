"""penstock transport"""
