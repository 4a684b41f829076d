"""The lab: every figure penstock states, measured beside this machine's own limits and its peers.

`benches` say what is measured, one file each. They drive it with `load` (open loops, capacity, peers), against
`systems` (message systems), `stores` (embedded ones) and `bare` (the machine without either), and all of those may use
`lab` (rows, samples, results, report), which knows none of them. Imports point in that order only; the command,
`__main__`, is above everything. Results are in `results` and RESULTS.md. See README.md here.
"""
