"""The load generator of `manystream bench`, and the check of what it measures.

| module | role |
|---|---|
| `arrivals` | when the calls of an open loop are due |
| `work` | what the calls ask: prompts, lengths, sessions |
| `load` | makes the calls of one run in one process |
| `moments` | sockets that note when bytes were sent and received; the record of one call |
| `figures`, `histogram` | the spans of all calls as mergeable histograms, by windows; percentiles with intervals |
| `validity` | what the client itself added, and the verdict on a run |
| `runs` | a whole run: calibration, several processes, the verdict |
| `search` | the highest rate that keeps an objective |
| `report` | a result as a JSON object, of which every other report is made |
| `pages`, `compare` | a result as one HTML file; the difference of two results |

A time is what the kernel noted, or the moment at which a socket was read; never that of a callback. What an end cuts,
or what could not start in time, is counted. A result whose client was the bottleneck is marked as invalid.
"""
