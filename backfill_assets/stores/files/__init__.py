"""The store on a local directory: attempts, durable publishing, scanning, the root's identity."""
