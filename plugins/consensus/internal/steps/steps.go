package steps

import (
	"slices"

	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// The member's own files.
const (
	// MarkForming, MarkJoining, MarkComplete and MarkRemoved write the marker, which says how far a member has come.
	MarkForming, MarkJoining  checkpoint.Step = "mark-forming", "mark-joining"
	MarkComplete, MarkRemoved checkpoint.Step = "mark-complete", "mark-removed"
	// DeleteMember deletes the data and the credentials of a member that is none any more.
	DeleteMember checkpoint.Step = "delete-member"
	// MarkReplaced and PutAside are for a member that was removed while its node may still have one: its data is put aside, and a new member joins.
	MarkReplaced, PutAside checkpoint.Step = "mark-replaced", "put-aside"
	// WritePeerKey, WritePeerCA and WritePeerCertificate write what the member speaks to the others with.
	WritePeerKey, WritePeerCA, WritePeerCertificate checkpoint.Step = "write-peer-key", "write-peer-ca", "write-peer-certificate"
	// BeginLog begins the log of a member that joins.
	BeginLog checkpoint.Step = "begin-log"
	// ReceiveSnapshot keeps the snapshot of which a member is to be made, and LayRestored makes its files of it.
	ReceiveSnapshot, LayRestored checkpoint.Step = "receive-snapshot", "lay-restored"
	// StartEtcd starts etcd, which makes its files if there are none.
	StartEtcd checkpoint.Step = "start-etcd"
	// BeginRehearsal makes the directory in which a snapshot is rehearsed, and Rehearse restores the snapshot there.
	BeginRehearsal, Rehearse checkpoint.Step = "begin-rehearsal", "rehearse"
)

// What makes one survivor of a lost majority the only member.
const (
	// PromiseRecovery keeps that the member votes for nobody, and BeginRecovery that it is to become the only one.
	PromiseRecovery, BeginRecovery checkpoint.Step = "promise-recovery", "begin-recovery"
	// CommitLog notes that all of the log is agreed upon, and BeginGeneration begins a new generation of the store in the data.
	CommitLog, BeginGeneration checkpoint.Step = "commit-log", "begin-generation"
	// RemakeMember makes a new member of its data, and AdoptRemade puts the files of that in the place of the former ones.
	RemakeMember, AdoptRemade checkpoint.Step = "remake-member", "adopt-remade"
	// DropCredentials deletes what the member spoke to the former others with. MarkForced and MarkRecovered keep that it is the only one, and that it serves.
	DropCredentials           checkpoint.Step = "drop-credentials"
	MarkForced, MarkRecovered checkpoint.Step = "mark-forced", "mark-recovered"
)

// What makes a store, and has others come into it.
const (
	// MakeRootRole, MakeRoot, GrantRoot and EnableAuthorization have etcd ask who calls.
	MakeRootRole, MakeRoot         checkpoint.Step = "make-root-role", "make-root"
	GrantRoot, EnableAuthorization checkpoint.Step = "grant-root", "enable-authorization"
	// ShareAuthority stores the CA of the peers.
	ShareAuthority checkpoint.Step = "share-authority"
	// Announce tells the leader that a node has prepared a member.
	Announce checkpoint.Step = "announce"
	// IssuePeerCertificate makes the certificate of a member that has its place.
	IssuePeerCertificate checkpoint.Step = "issue-peer-certificate"
	// MoveMember has the others know where the member is reached.
	MoveMember checkpoint.Step = "move-member"
)

// What the leader does, so that the store has the members that are wished.
const (
	// AddLearner adds a member that does not vote, and Promote has it vote.
	AddLearner, Promote checkpoint.Step = "add-learner", "promote"
	// NoteRemoval notes that a member is being removed, RemoveMember removes it, and FinishRemoval takes the note away when it has gone everywhere.
	NoteRemoval, RemoveMember, FinishRemoval checkpoint.Step = "note-removal", "remove-member", "finish-removal"
	// PrepareAuthority, ActivateAuthority and RetireAuthority replace the CA of the peers, and FollowAuthority is a member's word that it has come as far.
	PrepareAuthority, ActivateAuthority checkpoint.Step = "prepare-authority", "activate-authority"
	RetireAuthority, FollowAuthority    checkpoint.Step = "retire-authority", "follow-authority"
	// NoteAbsence is a member's word that it has nothing to do with a removed one any more.
	NoteAbsence checkpoint.Step = "note-absence"
	// HandOver has another member lead.
	HandOver checkpoint.Step = "hand-over"
	// GiveUp notes why a learner was given up.
	GiveUp checkpoint.Step = "give-up"
	// NoteDamage notes which members differ from the others.
	NoteDamage checkpoint.Step = "note-damage"
	// Tell tells the cluster API how far the store has come.
	Tell checkpoint.Step = "tell"
)

// What is done for the ConsensusUsers.
const (
	// MakeFence makes the user as which a leadership keeps the users, GrantFence gives it root's permissions, and DeleteFence deletes that of a former one.
	MakeFence, GrantFence, DeleteFence checkpoint.Step = "make-fence", "grant-fence", "delete-fence"
	// GiveNumber, MakeRole, ConfineRole, MakeUser and ConfineUser make one.
	GiveNumber, MakeRole, ConfineRole checkpoint.Step = "give-number", "make-role", "confine-role"
	MakeUser, ConfineUser             checkpoint.Step = "make-user", "confine-user"
	// RemoveUser and RemoveRole take one away.
	RemoveUser, RemoveRole checkpoint.Step = "remove-user", "remove-role"
	// WipeKeys removes what one has stored, and TakeNumberBack what is left of it then.
	WipeKeys, TakeNumberBack checkpoint.Step = "wipe-keys", "take-number-back"
)

// All are all of them.
func All() []checkpoint.Step {
	return slices.Concat(
		[]checkpoint.Step{MarkForming, MarkJoining, MarkComplete, MarkRemoved, MarkReplaced, PutAside, DeleteMember, WritePeerKey, WritePeerCA, WritePeerCertificate, BeginLog, StartEtcd},
		[]checkpoint.Step{PromiseRecovery, BeginRecovery, CommitLog, BeginGeneration, RemakeMember, AdoptRemade, DropCredentials, MarkForced, MarkRecovered, BeginRehearsal, Rehearse},
		[]checkpoint.Step{MakeRootRole, MakeRoot, GrantRoot, EnableAuthorization, ShareAuthority, Announce, IssuePeerCertificate, MoveMember},
		[]checkpoint.Step{AddLearner, Promote, NoteRemoval, RemoveMember, FinishRemoval, NoteAbsence, HandOver, GiveUp, NoteDamage, Tell},
		[]checkpoint.Step{ReceiveSnapshot, LayRestored},
		[]checkpoint.Step{PrepareAuthority, ActivateAuthority, RetireAuthority, FollowAuthority},
		[]checkpoint.Step{MakeFence, GrantFence, DeleteFence, GiveNumber, MakeRole, ConfineRole, MakeUser, ConfineUser, RemoveUser, RemoveRole, WipeKeys, TakeNumberBack},
	)
}
