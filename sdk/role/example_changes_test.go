package role_test

import (
	"fmt"
	"testing"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/internal/exampletest"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// A role that does something else while its node is cut off from the cluster.
func ExampleHost_Membership() {
	exampletest.Run(func(t testing.TB) {
		node := roletest.NewCluster(t, 1).Host(0)
		host := node.Instance(t, "lighthouse") // in a role that of Run, and its context

		for membership := range host.Membership().Changes(t.Context()) {
			fmt.Println(membership.GetState())
			if membership.GetState() == hostv1.MembershipState_MEMBERSHIP_STATE_SPLIT {
				break
			}
			node.Split()
		}
	})
	// Output:
	// MEMBERSHIP_STATE_HOME
	// MEMBERSHIP_STATE_SPLIT
}

// The nodes of the cluster, and those that join or leave.
func ExampleHost_Directory() {
	exampletest.Run(func(t testing.TB) {
		cluster := roletest.NewCluster(t, 2)
		host := cluster.Host(0).Instance(t, "lighthouse") // in a role that of Run, and its context

		seen := 0
		for directory := range host.Directory().Changes(t.Context()) {
			if seen == len(directory.GetNodes()) {
				continue // something else has changed
			}
			seen = len(directory.GetNodes())
			fmt.Println("nodes:", seen)
			if seen == 1 {
				break
			}
			cluster.Remove(cluster.Host(1))
		}
	})
	// Output:
	// nodes: 2
	// nodes: 1
}
