"""From candidates of public sets to a training set: stages that keep or drop, each with its reasons."""
