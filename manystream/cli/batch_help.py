"""The help text of `manystream batch`. Each line has at most 80 columns."""

DESCRIPTION = """\
Send every line of a JSONL file to a model, many at a time, and write each
answer when it is complete. To resume an interrupted batch, give the same
command again: lines whose id is in the file of answers are skipped.

without a key and without cost, from the built-in simulator:
  manystream batch prompts.jsonl -o answers.jsonl --simulate

from the model that each line names:
  manystream batch prompts.jsonl -o answers.jsonl

from one model:
  manystream batch prompts.jsonl -o answers.jsonl --model gpt-5-mini
  manystream batch prompts.jsonl -o answers.jsonl --model gpt-5-mini \\
      --concurrency 1000 --max-rps 50 --max-tpm 400000
  manystream batch prompts.jsonl -o answers.jsonl --model llama3.2 \\
      --base-url http://127.0.0.1:11434/v1

from the first model, and from the next one where that fails:
  manystream batch prompts.jsonl -o answers.jsonl \\
      --route gpt-5-mini,anthropic/claude-sonnet-4-5

from several servers with the same model:
  manystream batch prompts.jsonl -o answers.jsonl --model llama3.2 \\
      --base-url http://10.0.0.1:8000/v1 --base-url http://10.0.0.2:8000/v1

as a part of a pipeline:
  manystream batch - -o - --model gpt-5-mini --system "Translate to French." \\
      < prompts.jsonl | jq -r .text

the rows of a table, and a table of their answers:
  manystream batch reviews.parquet -o labels.parquet --model gpt-5-mini \\
      --prompt "Is this review good or bad? {review}"

at half the price, if that keeps the deadline:
  manystream batch prompts.jsonl -o answers.jsonl --model gpt-5-mini --by 06:00

failed lines again:
  manystream batch prompts.jsonl -o answers.jsonl --retry-failed

as four processes, each with a part of the lines:
  seq 0 3 | xargs -P 4 -I{} manystream batch prompts.jsonl -o answers.jsonl \\
      --shard {}/4
"""
EPILOG = """\
a line of the input has one of these forms:
  {"id": "1", "prompt": "Why?"}
      ours, with one message
  {"id": "1", "messages": [{"role": "user", "content": "Why?"}], …}
      ours; other members are options of a request
  {"custom_id": "1", "method": "POST", "url": "/v1/responses", "body": {…}}
      OpenAI's and Azure's; the url may also be /v1/chat/completions
  {"custom_id": "1", "params": {…}}
      Anthropic's
  Members that are neither are columns of your own: the answer has them, too.

tables:
  A file that ends in .parquet, .csv, .tsv or .jsonl.gz is a table. Its rows
  are lines of our form, with the columns as members. With --prompt or
  --prompt-field, all columns are your own, in JSONL, too, and a row needs no
  id. The table of -o has every row of the input in its order, its columns, and
  text, thinking, parsed, tool_calls, usage, cost, model, finish_reason and
  error. A column with such a name gets input_ before it. The table is written
  at the end, from answers.parquet.journal.jsonl, which holds each answer as
  soon as it is there; --finish writes it at any time and sends nothing. In CSV,
  --escape-formulas puts ' before what a spreadsheet takes for a formula.
  Parquet needs the extra `tables`: pip install '.[tables]' in the checkout.

files:
  answers.jsonl         the answers: id, text, thinking, tool_calls,
                        finish_reason, usage, attempts, seconds
  answers.errors.jsonl  the failures: id, line, and the reason. --retry-failed
                        sends these lines again. A line that is not a valid
                        request is reported here, too, with its number; every
                        run checks it again.
  -o - prints the answers, and without --errors the failures, too, on standard
  error. No later run continues from them.

models:
  --model M                       every line is sent to M, whatever model the
                                  line names
  --route M,N                     every line is sent to M; where that fails, to
                                  N; with --base-url, both at that server
  --provider or --base-url alone  each line is sent to the model that it names
  none of these                   the same; its name selects the provider, among
                                  those that have a key
  --simulate                      the built-in simulator answers, not a model

requests:
  --system, --max-tokens, --temperature and --schema are for all lines, whatever
  a line says. --schema takes a file with a JSON Schema or a pydantic model,
  such as shapes:City for the class City of shapes.py; an answer has its value
  as parsed.

rate:
  Lines are sent as fast as the limits of the key allow. The command learns the
  limits from what the server reports and refuses. A refused line is sent again
  and does not count against --attempts. --max-rps and --max-tpm are limits of
  your own, over all models together. A minute's tokens may be used at once.

outages:
  While a server takes no connections, lines wait for it, for half an hour or as
  long as --outage says, and one call per second asks whether it is back.

budget:
  --budget 5 lets all runs on these files cost at most 5 US dollars, at the list
  prices of the extra `cost`, and those of --prices FILE. What the files already
  hold is counted, and what Ctrl-C cancels. Without --ray,
  calls that run when the command is killed are not counted. A line is sent only
  if the most that it may cost fits: a smaller max_output_tokens lets more lines
  run at a time, and more fit in the end. When the budget is spent, running
  lines end, the others stay unsent, and the exit status is 1. The same command
  with a larger budget sends them.

deadlines:
  --by 06:00 or --by 3h: each line goes the cheapest way that can be expected to
  keep the deadline: the provider's batch interface (half the price), a window
  of OpenAI's Responses, or live. When the deadline comes into danger, a batch
  is cancelled, its partial results are taken, and the rest goes live. --via
  fixes the way. What is submitted is in answers.batches.jsonl, so that nothing
  is submitted twice. Ctrl-C leaves the batches running; the same command takes
  their answers. --status answers.jsonl shows them, asks the provider how far
  they are, and submits nothing.

shards:
  --shard 2/8 sends the lines whose number modulo 8 is 2, and writes
  answers.2-of-8.jsonl and answers.2-of-8.errors.jsonl. Line numbers begin with
  1, shards with 0. --max-rps, --max-tpm and --budget are for all shards
  together: each shard uses an eighth. --concurrency is for one shard.

a Ray cluster:
  --ray 10.0.0.5:6379 --actors 16 divides the calls among 16 workers on a
  cluster, with the same files. --concurrency, --max-rps, --max-tpm and --budget
  are for all workers together. No worker begins with saved-up tokens. What a
  lost worker may have spent counts as spent: a line of the failures has it.
  Needs the extra `ray`: pip install '.[ray]' in manystream's checkout.

With the extra `cost` (pip install '.[cost]' in the checkout), the progress,
the summary and the answers show the cost.

exit status:
  0    every line has an answer
  1    some lines failed, the budget did not allow them, or the deadline was
       missed
  2    the command line is wrong
  130  interrupted; all answers so far are in the file
"""
