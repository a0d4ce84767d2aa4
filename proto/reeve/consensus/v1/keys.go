package consensusv1

// DesiredStateKey is where, below the prefix of the cluster user, the cluster API keeps the binary encoded DesiredState.
const DesiredStateKey = "consensus/desired"

// UserPrefix is the prefix of the keys that a ConsensusUser owns. It ends with a slash.
func UserPrefix(user string) string {
	return "/reeve/users/" + user + "/"
}
