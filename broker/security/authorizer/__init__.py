"""Authorization by ACLs (StandardAuthorizer)."""
