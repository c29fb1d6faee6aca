"""The driver's side: it starts replica servers, here and on other hosts, and knows where they are."""
