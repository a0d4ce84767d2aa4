package archivev1

const (
	// Role is the name of the role that is served, and Endpoint that of the endpoint at which curators serve it.
	Role     = "archive"
	Endpoint = "snapshots"
)
