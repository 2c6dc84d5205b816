# shellcheck shell=sh
# Removes the kit's tables of nftables that a killed run has left.
nft list tables inet 2>/dev/null | sed -n 's/^table inet \(rackproof_[0-9a-f]*\)$/\1/p' | while read -r left; do
  nft delete table inet "$left"
done
