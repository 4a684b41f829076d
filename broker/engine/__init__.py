"""penstock engine"""
