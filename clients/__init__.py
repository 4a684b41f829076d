"""penstock clients"""
