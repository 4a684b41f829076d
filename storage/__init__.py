"""penstock storage"""
