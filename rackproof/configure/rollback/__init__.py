"""What a run changes is kept on the node before it is changed, and can be brought back."""
