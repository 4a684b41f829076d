"""The main job: real flights through a broker and back, checked against the file they came from.

`flights` is the data, `tally` what a consumer counts, `expected` what numpy reads in the file directly, `check` the
comparison; `producer` and `consumer` are the processes, `roles` how the conductor talks to them, `stream` the job
itself, `doors` has Redis and HTTP clients read the same. `late` says which flights are tasks and how each fares,
`worker` works them off, `queue` is that part of the job and `check_queue` its verdict. `feeder` streams the flights
in, `delays` is the Spark program that reads them, `live` that part of the job and `check_delays` its verdict, by what
`hours` reads in the file. `listening` hears the processes, `display` is what a person sees, `run` the whole of it.
"""
