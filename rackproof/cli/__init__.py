"""The command line: options in, errors and exit statuses out."""
