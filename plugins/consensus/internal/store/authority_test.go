package store_test

import (
	"path/filepath"
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// TestMemberNeverGoesBackToAFormerCA starts a member that has less of the store's data than it had, as one may that was ended: it trusts and shows what it did, which the others demand, and not what
// its data says. When its data has come as far, it goes on.
func TestMemberNeverGoesBackToAFormerCA(t *testing.T) {
	directory := storetest.Directory(t)
	config, _ := placed(t, storetest.Config(t, directory))
	s, stop := storetest.OpenWith(t, config, storetest.Plan)
	steady, err := s.Authority()
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := steady.Prepare("cluster-a")
	if err != nil {
		t.Fatal(err)
	}
	active, err := prepared.Activate()
	if err != nil {
		t.Fatal(err)
	}
	retired, err := active.Retire()
	if err != nil {
		t.Fatal(err)
	}
	files := peers.Files{Directory: filepath.Join(config.Directory, "peer")}
	follows := func(authority *peers.Authority) bool {
		credentials, err := files.Load()
		return err == nil && credentials.Follows(authority)
	}
	if !follows(steady) {
		t.Fatal("a member does not follow the CA of its store")
	}
	member, err := peers.ParseMember(s.MemberID())
	if err != nil {
		t.Fatal(err)
	}
	stop()
	key, err := files.Key()
	if err != nil {
		t.Fatal(err)
	}
	name := peers.Name{Cluster: "cluster-a", Node: "reeve-1", Member: member}
	certificate, err := active.Issue(key.Public(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := files.Install(certificate, active.Certificates(), name); err != nil {
		t.Fatal(err)
	}
	plan := storetest.Plan
	plan.New = false
	s, _ = storetest.OpenWith(t, config, plan)
	if !follows(active) {
		t.Fatal("a member that was started again follows a former CA")
	}
	put := func(authority *peers.Authority) {
		t.Helper()
		content, err := authority.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Client().Put(store.Root(storetest.Context(t)), peers.AuthorityKey, string(content)); err != nil {
			t.Fatal(err)
		}
	}
	followed := func(authority *peers.Authority) func() bool {
		return func() bool {
			told, err := s.Client().Get(store.Root(storetest.Context(t)), peers.FollowedKey(member))
			return err == nil && len(told.Kvs) == 1 && string(told.Kvs[0].Value) == authority.Mark()
		}
	}
	put(prepared)
	put(active)
	storetest.Eventually(t, "the member says that it follows the CA", followed(active))
	put(prepared) // as a joining member comes by it, which reads the log from its beginning
	put(retired)
	storetest.Eventually(t, "the member says that it has forgotten the old one", followed(retired))
	if !follows(retired) {
		t.Error("it says so, and does not")
	}
}
