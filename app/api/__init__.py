"""The only HTTP code: one router a resource. A route parses, calls one use case and renders."""
