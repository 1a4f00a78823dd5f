"""The tie: checks that what the shipped code did in a simulation is a run of the proof."""
