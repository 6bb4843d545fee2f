"""The local web page and its JSON API: drop a video, move the plan, see what is kept."""
