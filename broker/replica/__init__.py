"""The replica of a shard: one order log beside the partition logs, which gives all of their batches one order."""
