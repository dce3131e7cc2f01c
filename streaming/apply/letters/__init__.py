"""streaming/apply/letters"""
