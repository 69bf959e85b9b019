fetch_video = None
