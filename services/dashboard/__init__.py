"""The pages over the REST API: plain JavaScript modules, with what they need from others in `vendor`."""
