"""How schedules are simulated: waiting rules and their event queue, rounds, and the max-plus law."""
