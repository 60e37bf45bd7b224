"""Reading an application's state from outside its tasks."""
