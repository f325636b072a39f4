"""The Flower app that is shipped to SuperNodes: a relay of bytes, and the entry of the server's run loop."""
