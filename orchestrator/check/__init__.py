"""Can it run? Everything that answers this lies here; `coevo check` shows it.

Which file answers which question:

`presets`: which presets are there, and what is each? `init`: how do I make one of my own (`coevo init`)?
`start`: may a run start, and with which settings? `refusals`: what on this machine keeps it from starting?
`needs`: which models, data, GPUs, packages and services does it need, and which are missing here?
`layout`: who holds which GPU in which stage? `size/`: how much memory and disk, how many tokens and hours does it take?
`machine/`: is this machine ready for the services, and does what a preset names work here?
`smoke/`: does a preset's whole path work here (`coevo check PRESET --run`)?
`answers`: all of these for one preset.
"""
