package desired_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/desired"
	"github.com/reeveproject/reeve/proto/identity"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

func document(t testing.TB, change func(*consensusv1.DesiredState), users ...string) []byte {
	t.Helper()
	state := &consensusv1.DesiredState{Members: []string{"reeve-1"}}
	for _, user := range users {
		state.Users = append(state.Users, &consensusv1.DesiredUser{ConsensusUser: user, Role: user})
	}
	if change != nil {
		change(state)
	}
	content, err := proto.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestParse(t *testing.T) {
	wipes := func(users ...string) func(*consensusv1.DesiredState) {
		return func(state *consensusv1.DesiredState) { state.WipedUsers = users }
	}
	for name, c := range map[string]struct {
		content []byte
		problem string
	}{
		"good":          {document(t, nil, "a", "b"), ""},
		"no users":      {document(t, nil), ""},
		"wipes":         {document(t, wipes("c"), "a"), ""},
		"empty":         {nil, "empty"},
		"not proto":     {[]byte("\xff"), "not a DesiredState"},
		"root":          {document(t, nil, "root"), `"root"`},
		"not a name":    {document(t, nil, "a/b"), `"a/b"`},
		"without name":  {document(t, nil, ""), `""`},
		"twice":         {document(t, nil, "a", "b", "a"), "the user a"},
		"wipes root":    {document(t, wipes("c", "root")), `wiped_users[1]: "root"`},
		"wipes all":     {document(t, wipes("")), `wiped_users[0]: ""`},
		"less":          {document(t, func(state *consensusv1.DesiredState) { state.Users[0].BytesQuota = -1 }, "a"), "-1 bytes"},
		"fewer":         {document(t, func(state *consensusv1.DesiredState) { state.Users[0].LeasesQuota = -1 }, "a"), "-1 leases"},
		"far too many":  {document(t, nil, slices.Repeat([]string{"a"}, 10_001)...), "10001 users"},
		"many wiped":    {document(t, wipes(slices.Repeat([]string{"a"}, 10_001)...)), "10001 to be wiped"},
		"later version": {append(document(t, nil, "a"), 0xfa, 0x07, 0x01, 'x'), ""}, // an unknown field
	} {
		_, err := desired.Parse(c.content)
		if c.problem == "" && err != nil || c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)) {
			t.Errorf("%s: %v, want %q", name, err, c.problem)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte("\x0a\x03\x0a\x01a"))
	f.Add([]byte("\x0a\x06\x0a\x04root"))
	f.Add(document(f, func(state *consensusv1.DesiredState) { state.WipedUsers = []string{"b"} }, "a"))
	f.Fuzz(func(t *testing.T, content []byte) {
		state, err := desired.Parse(content)
		if err != nil {
			return
		}
		seen := make(map[string]bool)
		for _, user := range state.Users {
			if !identity.ValidConsensusUser(user.ConsensusUser) || seen[user.ConsensusUser] || user.BytesQuota < 0 || user.LeasesQuota < 0 {
				t.Fatalf("accepted the user %v", user)
			}
			seen[user.ConsensusUser] = true
		}
		for _, user := range state.WipedUsers {
			if !identity.ValidConsensusUser(user) {
				t.Fatalf("accepted that %q is wiped", user)
			}
		}
	})
}
