package keeper

import (
	"cmp"
	"slices"

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

// behind returns the newest that the curator has, if there are only newer copies to keep: true. The numbers have begun again, as they do when a cluster is restored from an old snapshot.
func behind(had []curator.Snapshot, copies map[snapshot.Name]int64, keep int) (snapshot.Name, bool) {
	if len(had) == 0 {
		return snapshot.Name{}, false
	}
	newest := slices.MinFunc(had, func(a, b curator.Snapshot) int { return newer(a.Name, b.Name) }).Name
	return newest, !slices.Contains(wanted(had, copies, keep), newest)
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
