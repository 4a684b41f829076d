"""Groups of tasks with one callback: what is sent, and the verbs that send and list it."""
