"""Who may ask the API, and how much: keys, origins, headers, and limits of bodies and connections."""
