"""An alarm on a certificate that is deployed."""
