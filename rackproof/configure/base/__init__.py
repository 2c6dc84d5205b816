"""What every node needs: packages, time, limits, kernel settings, no updates by themselves."""
