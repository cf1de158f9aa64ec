#: tries: makes the compiler warn, and has warnings be errors
#: task: sum
#: verdict: wrong_answer
#: build: yes

program = "import warnings\nwarnings.simplefilter('error')\n" + "x = '\\d' is 1\n" * 5000 + "print(8)"
