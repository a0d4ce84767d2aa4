package faults

// The faults of a role that uses the store, and of one whose core goes away.
const (
	NeverOpens        = "never-opens"
	Strays            = "strays"
	GivesUpWaiting    = "gives-up-waiting"
	EndsWithoutStore  = "ends-without-store"
	HidesLoss         = "hides-loss"
	SpinsWithoutStore = "spins-without-store"
	StaysWithoutStore = "stays-without-store"
	FailsRevoked      = "fails-revoked"
	FloodsRevoked     = "floods-revoked"
	FailsInSplit      = "fails-in-split"
	EndsInSplit       = "ends-in-split"
	FailsFull         = "fails-full"
	HidesFull         = "hides-full"
	LeavesLease       = "leaves-lease"

	EndsWithoutCore  = "ends-without-core"
	SpinsWithoutCore = "spins-without-core"
	OtherAdopted     = "other-adopted"
	StaysDeaf        = "stays-deaf"
	BadAdoptedExit   = "bad-adopted-exit"
)

// OfStore returns the check that must find each fault of a role that uses the store.
func OfStore() map[string]string {
	return map[string]string{
		NeverOpens:        "store.ready",
		Strays:            "store.own-keys",
		GivesUpWaiting:    "store.waits",
		EndsWithoutStore:  "store.away",
		HidesLoss:         "store.told",
		SpinsWithoutStore: "store.patience",
		StaysWithoutStore: "store.back",
		FailsRevoked:      "store.revoked",
		FloodsRevoked:     "store.revoked",
		FailsInSplit:      "store.split",
		EndsInSplit:       "store.split",
		FailsFull:         "store.full",
		HidesFull:         "store.full",
		LeavesLease:       "store.leases",
	}
}

// ofRestart returns the check that must find each fault of a role whose core goes away.
func ofRestart() map[string]string {
	return map[string]string{
		EndsWithoutCore:  "restart.lives",
		SpinsWithoutCore: "restart.patience",
		OtherAdopted:     "restart.status",
		StaysDeaf:        "restart.follows",
		BadAdoptedExit:   "restart.stop",
	}
}
