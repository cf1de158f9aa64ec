#: tries: learns an answer in one problem and gives it in another
#: task: given
#: verdict: accepted

text = input()
print(text)
for folder in ("/tmp/", "/dev/shm/", "/var/tmp/", "/program/", "/", "./"):
    try:
        with open(folder + MARK, "w") as file:
            file.write(text)
    except OSError:
        pass
#: task: token-twin
#: verdict: wrong_answer runtime_error

import glob

folders = ("/tmp/", "/dev/shm/", "/var/tmp/", "/program/", "/", "./")
for path in (*[folder + MARK for folder in folders], *glob.glob("/tmp/*")):
    try:
        print(open(path).read())
        break
    except OSError:
        pass
