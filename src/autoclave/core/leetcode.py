"""The classes that LeetCode defines for its problems, with the helpers that tests of LeetCodeDataset use, as text."""

NODES = """
class ListNode:
    def __init__(self, val=0, next=None):
        self.val = val
        self.next = next

class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val = val
        self.left = left
        self.right = right

def list_node(values):
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head

def is_same_list(first, second):
    while first and second and first.val == second.val:
        first, second = first.next, second.next
    return first is None and second is None

def tree_node(values):
    nodes = [None if value is None else TreeNode(value) for value in values]
    children = iter(nodes[1:])
    for node in filter(None, nodes):
        node.left, node.right = next(children, None), next(children, None)
    return nodes[0] if nodes else None

def is_same_tree(first, second):
    if not first or not second:
        return first is None and second is None
    return (first.val == second.val and is_same_tree(first.left, second.left)
            and is_same_tree(first.right, second.right))
"""
NAMES = ("ListNode", "TreeNode", "list_node", "is_same_list", "tree_node", "is_same_tree")
"""Names that `NODES` defines."""
