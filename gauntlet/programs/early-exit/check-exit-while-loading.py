#: tries: ends before the check could begin
#: task: add-check
#: verdict: runtime_error wrong_answer

raise SystemExit(0)
