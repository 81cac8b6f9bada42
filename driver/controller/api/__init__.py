"""What the controller's listener answers: `table` says who answers which API, a file each kind of them."""
