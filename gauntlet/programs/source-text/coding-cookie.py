#: tries: declares an encoding in which a comment is code
#: task: sum
#: verdict: wrong_answer
#: build: yes

program = "# -*- coding: utf-7 -*-\n# +AAo-print(sum(map(int, input().split())))\nprint(8)"
