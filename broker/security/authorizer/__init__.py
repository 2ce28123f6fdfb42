"""ACLs: who may do what (StandardAuthorizer)."""
