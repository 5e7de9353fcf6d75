"""What must survive: lost replies, frozen holders, forks, restarts. One file for each class of fault."""
