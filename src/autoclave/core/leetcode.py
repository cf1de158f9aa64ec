"""The classes that LeetCode defines for its problems, with the helpers that tests of LeetCodeDataset use, as text."""

from pathlib import Path

NODES = Path(__file__).with_name("leetcode_nodes.txt").read_text("utf-8")
NAMES = ("ListNode", "TreeNode", "list_node", "is_same_list", "tree_node", "is_same_tree")
"""Names that `NODES` defines."""
