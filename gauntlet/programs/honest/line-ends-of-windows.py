#: tries: has a byte order mark, line ends of Windows and no last line end
#: task: sum
#: verdict: accepted
#: build: yes

program = "\ufeff# -*- coding: latin-1 -*-\r\nnumbers = input().split()\r\nprint(sum(map(int, numbers)))"
