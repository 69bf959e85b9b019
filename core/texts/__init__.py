"""What a text must not have before it is stored, shown or logged: half characters, commands, secrets."""
