#: tries: prints when its object is forgotten
#: task: sum
#: verdict: accepted


class Printer:
    def __init__(self, total):
        self.total = total

    def __del__(self):
        print(self.total)


printer = Printer(sum(map(int, input().split())))
