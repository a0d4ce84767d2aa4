package faults

// The faults of what a role costs, of what it reaches for, and of how it meets cores that are newer or older than it.
const (
	ChattersDriven = "chatters-driven"

	StartsSlowly = "starts-slowly"
	TakesMemory  = "takes-memory"
	NeverRests   = "never-rests"
	LeaksFiles   = "leaks-files"
	LeaksThreads = "leaks-threads"
	LeaksMemory  = "leaks-memory"
	FillsData    = "fills-data"

	ReachesOut     = "reaches-out"
	SpawnsAnyway   = "spawns-anyway"
	HidesChild     = "hides-child"
	WritesAside    = "writes-aside"
	ListensAside   = "listens-aside"
	AbstractSocket = "abstract-socket"

	RefusesFields = "refuses-fields"
	RefusesReason = "refuses-reason"
	FailsNewState = "fails-new-state"
	NeedsNewHost  = "needs-new-host"
)

// The faults of roles that their machine keeps from their work, or that take long to stop.
const (
	BlockedConfined = "blocked-confined"
	BlockedSilently = "blocked-silently"
	BlockedUnasked  = "blocked-unasked"
	StopsLate       = "stops-late"
)

// Blocked is the fault of a plugin that has none, whose machine lacks what it needs; one of its roles listens.
const Blocked = "blocked"

// The faults of a role that listens on a port, and of one that wants a power of its host.
const (
	NoEndpoint    = "no-endpoint"
	WrongEndpoint = "wrong-endpoint"
	OtherPort     = "other-port"

	Oversteps     = "oversteps"
	EndsPowerless = "ends-powerless"
)

// ofCosts returns the check that must find each fault of what a role costs and reaches for, and of cores of other versions.
func ofCosts() map[string]string {
	return map[string]string{
		ChattersDriven: "logging.driven",
		StartsSlowly:   "resources.start",
		TakesMemory:    "resources.memory",
		NeverRests:     "resources.idle",
		LeaksFiles:     "resources.growth",
		LeaksThreads:   "resources.growth",
		LeaksMemory:    "resources.growth",
		FillsData:      "resources.files",
		ReachesOut:     "isolation.runs",
		SpawnsAnyway:   "isolation.runs",
		HidesChild:     "isolation.processes",
		WritesAside:    "isolation.files",
		ListensAside:   "isolation.sockets",
		AbstractSocket: "isolation.sockets",
		RefusesFields:  "peers.newer-core",
		RefusesReason:  "peers.newer-core",
		FailsNewState:  "peers.newer-host",
		NeedsNewHost:   "peers.older-host",

		BlockedConfined: "lifecycle.ready",
		StopsLate:       "lifecycle.stop",
	}
}

// OfServer returns the check that must find each fault of a role that listens on a port.
func OfServer() map[string]string {
	return map[string]string{
		NoEndpoint:    "network.published",
		WrongEndpoint: "network.reachable",
		OtherPort:     "network.granted",
	}
}

// OfSteward returns the check that must find each fault of a role that wants a power of its host.
func OfSteward() map[string]string {
	return map[string]string{
		Oversteps:     "powers.granted",
		EndsPowerless: "powers.withheld",

		BlockedSilently: "lifecycle.ready",
		BlockedUnasked:  "peers.older-host",
	}
}
