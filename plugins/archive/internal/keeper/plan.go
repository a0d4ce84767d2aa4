package keeper

import (
	"cmp"
	"slices"
	"time"

	"github.com/reeveproject/reeve/plugins/archive/internal/curator"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// newer orders names, the newest first.
func newer(a, b snapshot.Name) int {
	return cmp.Or(cmp.Compare(b.Number, a.Number), b.Asked.Compare(a.Asked))
}

// missing returns what must be copied, the newest first: what is not there, and would not be removed again.
func missing(had []curator.Snapshot, copies map[snapshot.Name]int64, keep int) []curator.Snapshot {
	all := wanted(had, copies, keep)
	found := slices.DeleteFunc(slices.Clone(had), func(one curator.Snapshot) bool {
		_, ok := copies[one.Name]
		return ok || !slices.Contains(all, one.Name)
	})
	slices.SortFunc(found, func(a, b curator.Snapshot) int { return newer(a.Name, b.Name) })
	return found
}

// behind returns the newest that the curator has, and how many copies have a higher number, if the numbers have begun again, as they do when a cluster is restored from an old snapshot; 0: they have
// not. They have if a copy with a higher number was asked for earlier, or if the newest has no room among the copies.
func behind(had []curator.Snapshot, copies map[snapshot.Name]int64, keep int) (newest snapshot.Name, higher int) {
	if len(had) == 0 {
		return snapshot.Name{}, 0
	}
	newest = slices.MinFunc(had, func(a, b curator.Snapshot) int { return newer(a.Name, b.Name) }).Name
	again := !slices.Contains(wanted(had, copies, keep), newest)
	for name := range copies {
		if name.Number > newest.Number {
			higher++
			again = again || name.Asked.Before(newest.Asked)
		}
	}
	if !again {
		return newest, 0
	}
	return newest, higher
}

// wanted returns what there should be, the newest first. keep is how many copies there may be; 0: any number.
func wanted(had []curator.Snapshot, copies map[snapshot.Name]int64, keep int) []snapshot.Name {
	all := names(copies)
	for _, one := range had {
		if _, ok := copies[one.Name]; !ok {
			all = append(all, one.Name)
		}
	}
	slices.SortFunc(all, newer)
	if keep > 0 && len(all) > keep {
		all = all[:keep]
	}
	return all
}

// tooMany returns the copies beyond the newest ones.
func tooMany(copies map[snapshot.Name]int64, keep int) []snapshot.Name {
	all := names(copies)
	slices.SortFunc(all, newer)
	if keep == 0 || len(all) <= keep {
		return nil
	}
	return all[keep:]
}

func names(copies map[snapshot.Name]int64) []snapshot.Name {
	all := make([]snapshot.Name, 0, len(copies))
	for name := range copies {
		all = append(all, name)
	}
	return all
}

// latest returns when the most recent copy was asked for, of those that are not ahead of a time; the zero time: there is none. Numbers do not tell that: they may have begun again.
func latest(copies map[snapshot.Name]int64, ahead time.Time) (found time.Time) {
	for name := range copies {
		if name.Asked.After(found) && !name.Asked.After(ahead) {
			found = name.Asked
		}
	}
	return found
}
