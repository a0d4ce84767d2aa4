package consensusv1

// DesiredStateKey is where, below the prefix of the cluster user, the cluster API keeps the binary encoded DesiredState.
const DesiredStateKey = "consensus/desired"

// StoreStateKey is where, below the prefix of the cluster user, the leader of the store keeps the binary encoded StoreState.
const StoreStateKey = "consensus/state"

// PeerEndpoint is the name of the endpoint at which a member of the store serves the PeerService to the others.
const PeerEndpoint = "reeve.consensus.v1"

// UserPrefix is the prefix of the keys that a ConsensusUser owns. It ends with a slash.
func UserPrefix(user string) string {
	return "/reeve/users/" + user + "/"
}

// StoreGenerationKey is where, below the prefix of the cluster user, the store keeps the binary encoded StoreGeneration of a store that was begun again.
const StoreGenerationKey = "consensus/generation"

// NoRoom is the reason, in an ErrorInfo of the status, of a snapshot that was not taken since there is too little room on the member's disk.
const NoRoom = "NO_ROOM"

// NoRoomMissing is the key, in the metadata of that ErrorInfo, of how many bytes more the member needs, in decimal. Without it that is not known.
const NoRoomMissing = "missing_bytes"
